package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestWhatSurvives(t *testing.T) {
	t.Parallel()
	file := func(d *disk, name string) *node {
		n := &node{mode: syscall.S_IFREG | 0o600, uid: uint32(os.Getuid()), gid: uint32(os.Getgid())}
		d.change(d.root, name, n)
		return n
	}
	long := func(c string) []byte { return []byte(strings.Repeat(c, 3*page)) }
	for _, test := range []struct {
		name string
		do   func(d *disk)
		want map[string]string // what survives in any case; "?" for content that may survive in part
	}{
		{"a file that was synced", func(d *disk) { n := file(d, "a"); n.write([]byte("new"), 0); d.sync(n) }, map[string]string{"a": "new"}},
		{"a file that was not synced", func(d *disk) { file(d, "a").write([]byte("new"), 0) }, nil},
		{"an earlier file's entry", func(d *disk) { file(d, "a").write(long("a"), 0); d.sync(file(d, "b")) }, map[string]string{"a": "?", "b": ""}},
		{"a write after the fsync", func(d *disk) {
			n := file(d, "a")
			n.write(long("a"), 0)
			d.sync(n)
			n.write(long("b"), 0)
		}, map[string]string{"a": "?"}},
		{"a shorter file", func(d *disk) { n := file(d, "a"); n.write(long("a"), 0); d.sync(n); n.resize(2); d.sync(n) }, map[string]string{"a": "aa"}},
		{"zeros where a file was cut", func(d *disk) {
			n := file(d, "a")
			n.write([]byte("abc"), 0)
			d.sync(n)
			n.resize(1)
			n.resize(3)
			d.sync(n)
		}, map[string]string{"a": "a\x00\x00"}},
		{"a synced rename", func(d *disk) {
			n := file(d, "a")
			d.sync(n)
			d.change(d.root, "a", nil)
			d.change(d.root, "b", n)
			d.sync(d.root)
		}, map[string]string{"b": ""}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			contents := map[string]bool{}
			for seed := range uint64(40) {
				d := &disk{journal: map[*node]bool{}}
				d.root = &node{mode: syscall.S_IFDIR | 0o700, uid: uint32(os.Getuid()), gid: uint32(os.Getgid()), entries: map[string]*node{}}
				test.do(d)
				folder := filepath.Join(t.TempDir(), "disk")
				if err := d.powerFails(rand.New(rand.NewPCG(seed, 0))).save(d.root, folder); err != nil {
					t.Fatal(err)
				}
				for name, want := range test.want {
					got, err := os.ReadFile(filepath.Join(folder, name))
					if err != nil || want != "?" && string(got) != want {
						t.Errorf("%s contains %q, %v; want %q", name, got, err, want)
					}
					contents[string(got)] = true
				}
			}
			for _, want := range test.want {
				if want == "?" && len(contents) < 4 {
					t.Errorf("with 40 seeds only %d different contents survive", len(contents))
				}
			}
		})
	}
}

// A disk with what has survived contains the same.
func TestLoadAndSave(t *testing.T) {
	t.Parallel()
	from, to := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to")
	for _, err := range []error{os.MkdirAll(filepath.Join(from, "folder"), 0o750), os.WriteFile(filepath.Join(from, "folder", "file"), []byte("text"), 0o640), os.Symlink("folder/file", filepath.Join(from, "link"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	root, err := load(from)
	if err != nil {
		t.Fatal(err)
	}
	d := &disk{root: root, journal: map[*node]bool{}}
	if err := d.powerFails(rand.New(rand.NewPCG(1, 0))).save(root, to); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(to, "link"))
	if err != nil || string(text) != "text" {
		t.Errorf("the link leads to %q, %v", text, err)
	}
	for name, mode := range map[string]os.FileMode{"folder": 0o750, "folder/file": 0o640} {
		info, err := os.Stat(filepath.Join(to, name))
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s has the mode %v, %v; want %v", name, info, err, mode)
		}
	}
}
