// Package arrows has only tests. They define which package of the project may import which, and
// check the tree.
//
// The tests read the sources themselves, so that files with any build tag count, and so that go
// test notices a change and doesn't use a cached result.
package arrows
