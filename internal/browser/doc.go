// Package browser proves the admin page in a real Chromium. It is a module of its own, so that
// nobody else requires what drives one.
package browser
