// Package arrows is a test alone: it knows which package of the project may import which, and
// holds the tree to it.
//
// It reads the sources itself, so that files under every build tag count, and
// so that go test notices a change and runs the test again.
package arrows
