// Package arrows has only tests. The tests define which packages of the project each
// package may import, and check the imports of all source files.
//
// The tests read the source files themselves. So they check files with any build tag, and go test
// doesn't reuse a cached result after a file has changed.
package arrows
