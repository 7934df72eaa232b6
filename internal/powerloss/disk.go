package main

import (
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// disk is a tree of files in memory. It keeps two states of the files: the state that programs see, and the
// state that has been synced.
type disk struct {
	mu      sync.Mutex
	failed  bool // the power has failed: each operation returns EIO
	root    *node
	journal map[*node]bool // the folders that have changed since the last fsync
}

// page is the number of bytes that a disk writes either completely or not at all.
const page = 4096

// node is a file, a folder or a symbolic link.
type node struct {
	mode     uint32 // the permissions and the type
	uid, gid uint32
	modified time.Time
	links    uint32
	target   string // the target of a symbolic link

	seen, kept []byte         // a file's content: as programs see it, and as the file's last fsync wrote it
	dirty      map[int64]bool // the pages of seen that have changed since the file's last fsync

	entries, keptEntries map[string]*node // a folder's entries: as programs see them, and as the last fsync of any file wrote them
}

// write writes data at an offset.
func (n *node) write(data []byte, offset int64) {
	n.resize(max(int64(len(n.seen)), offset+int64(len(data))))
	copy(n.seen[offset:], data)
	n.touch(offset, offset+int64(len(data)))
}

// resize truncates the file, or extends it with zeros.
func (n *node) resize(size int64) {
	before := int64(len(n.seen))
	if size <= before {
		n.seen = n.seen[:size]
		return
	}
	n.seen = append(n.seen, make([]byte, size-before)...)
	n.touch(before, size)
}

func (n *node) touch(from, to int64) {
	if n.dirty == nil {
		n.dirty = map[int64]bool{}
	}
	for at := from / page; at*page < to; at++ {
		n.dirty[at] = true
	}
}

// sync makes the content of a file and the entries of all folders survive a power failure. As in file systems with a
// journal, such as ext4 and xfs, an fsync of a file also writes all earlier changes of folders, but not the content of
// other files.
func (d *disk) sync(n *node) {
	for folder := range d.journal {
		folder.keptEntries = maps.Clone(folder.entries)
	}
	clear(d.journal)
	n.kept = resized(n.survivor(func() bool { return true }), len(n.seen))
	clear(n.dirty)
}

// change sets an entry of a folder, or deletes it if n is nil.
func (d *disk) change(folder *node, name string, n *node) {
	if n == nil {
		delete(folder.entries, name)
	} else {
		folder.entries[name] = n
	}
	d.journal[folder] = true
}

// survivor returns the content of a file after a power failure. A page that was not synced survives if lucky returns true.
func (n *node) survivor(lucky func() bool) []byte {
	content := append([]byte(nil), n.kept...)
	for _, at := range slices.Sorted(maps.Keys(n.dirty)) {
		from, to := int(at*page), int(min((at+1)*page, int64(len(n.seen))))
		if from >= len(n.seen) || !lucky() {
			continue
		}
		if len(content) < to {
			content = resized(content, to)
		}
		copy(content[from:], n.seen[from:to])
	}
	return content
}

func resized(content []byte, size int) []byte {
	if size <= len(content) {
		return content[:size]
	}
	return append(content, make([]byte, size-len(content))...)
}

// load reads a file or folder of another file system. Its content counts as synced.
func load(path string) (*node, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	stat := info.Sys().(*syscall.Stat_t)
	n := &node{mode: stat.Mode, uid: stat.Uid, gid: stat.Gid, modified: info.ModTime(), links: 1}
	switch {
	case info.IsDir():
		n.entries = map[string]*node{}
		list, err := os.ReadDir(path)
		if err != nil {
			return nil, err
		}
		for _, entry := range list {
			if entry.Type()&os.ModeSocket != 0 {
				continue
			}
			if n.entries[entry.Name()], err = load(filepath.Join(path, entry.Name())); err != nil {
				return nil, err
			}
		}
		n.keptEntries = maps.Clone(n.entries)
	case info.Mode()&os.ModeSymlink != 0:
		n.target, err = os.Readlink(path)
	default:
		n.seen, err = os.ReadFile(path)
		n.kept = append([]byte(nil), n.seen...)
	}
	return n, err
}

// powerFails makes all later operations fail. Synced data survives. With a probability of one half, nothing else
// survives. Otherwise all changes of folders survive, and each page that was not synced survives with a probability of
// one half.
func (d *disk) powerFails(random *rand.Rand) *image {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed = true
	if random.IntN(2) == 0 {
		return &image{lucky: func() bool { return false }}
	}
	return &image{entries: true, lucky: func() bool { return random.IntN(2) == 0 }}
}

// image determines what survives a power failure.
type image struct {
	entries bool        // all entries of folders survive, even if they were not synced
	lucky   func() bool // decides whether the next page that was not synced survives
}

// save writes the surviving part of a file or folder to a path of another file system.
func (i *image) save(n *node, path string) error {
	var err error
	switch n.mode & syscall.S_IFMT {
	case syscall.S_IFDIR:
		if err = os.Mkdir(path, 0o700); err != nil {
			return err
		}
		entries := n.keptEntries
		if i.entries {
			entries = n.entries
		}
		for _, name := range slices.Sorted(maps.Keys(entries)) { // sorted, so that with the same seed the same pages survive
			if err := i.save(entries[name], filepath.Join(path, name)); err != nil {
				return err
			}
		}
	case syscall.S_IFLNK:
		return os.Symlink(n.target, path)
	default:
		err = os.WriteFile(path, n.survivor(i.lucky), 0o600)
	}
	if err == nil {
		err = os.Chown(path, int(n.uid), int(n.gid))
	}
	if err == nil {
		err = syscall.Chmod(path, n.mode&0o7777)
	}
	return err
}
