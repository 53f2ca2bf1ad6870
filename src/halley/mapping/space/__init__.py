"""Which mappings there are: shapes of trees and tile sizes that a search chooses among."""
