//go:build !unix

package config

import "os/exec"

// killable changes nothing: when the program's context ends, only the program is killed.
func killable(*exec.Cmd) {}
