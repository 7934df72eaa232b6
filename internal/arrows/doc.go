// Package arrows has only tests. They define which packages of the project each package may
// import, and check the imports in the tree.
//
// The tests read the source files themselves. So they check files with any build tag, and go test
// doesn't reuse a cached result after a change.
package arrows
