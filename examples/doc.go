// Package examples has no code. Its tests run the programs in its subfolders.
package examples
