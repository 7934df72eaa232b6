// Package browser tests the admin page in a real Chromium. It is a separate module, so that no
// other module requires a browser driver.
package browser
