"""Groups of training kernels that run as one."""
