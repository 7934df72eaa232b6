package httpsink

import (
	"errors"
	"testing"
)

// The test only checks addresses and connects to none.
func TestPublicAddressesAreAllowed(t *testing.T) {
	t.Parallel()
	for _, address := range []string{
		"1.1.1.1:443", "8.8.8.8:80", "9.255.255.255:1", "11.0.0.0:1", "100.63.255.255:1", "100.128.0.0:1", "126.255.255.255:1", "128.0.0.0:1",
		"169.253.255.255:1", "169.255.0.0:1", "172.15.255.255:1", "172.32.0.0:1", "192.167.255.255:1", "192.169.0.0:1", "198.17.255.255:1",
		"198.20.0.0:1", "223.255.255.255:1", "[2606:4700::1111]:443", "[2a00:1450::1]:80", "[::ffff:8.8.8.8]:80", "[2001:4860::8888]:1", "[3000::1]:1", "[64:ff9b::808:808]:1",
	} {
		if err := (guard{}).judge(address); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
	if err := (guard{}).judge("localhost:80"); err == nil || errors.As(err, new(insideError)) {
		t.Errorf("a host name was accepted: %v", err)
	}
}
