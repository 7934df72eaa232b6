// Package examples has no code. Its tests run the programs in the folders below it.
package examples
