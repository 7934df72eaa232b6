package main

import (
	"context"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// inode serves a node to the kernel.
type inode struct {
	fs.Inode
	disk *disk
	node *node
}

var (
	_ fs.NodeLookuper   = (*inode)(nil)
	_ fs.NodeGetattrer  = (*inode)(nil)
	_ fs.NodeSetattrer  = (*inode)(nil)
	_ fs.NodeReaddirer  = (*inode)(nil)
	_ fs.NodeOpener     = (*inode)(nil)
	_ fs.NodeCreater    = (*inode)(nil)
	_ fs.NodeReader     = (*inode)(nil)
	_ fs.NodeWriter     = (*inode)(nil)
	_ fs.NodeFsyncer    = (*inode)(nil)
	_ fs.NodeMkdirer    = (*inode)(nil)
	_ fs.NodeUnlinker   = (*inode)(nil)
	_ fs.NodeRmdirer    = (*inode)(nil)
	_ fs.NodeRenamer    = (*inode)(nil)
	_ fs.NodeLinker     = (*inode)(nil)
	_ fs.NodeSymlinker  = (*inode)(nil)
	_ fs.NodeReadlinker = (*inode)(nil)
)

// in runs an operation on the disk, unless the power has failed.
func (i *inode) in(operation func() syscall.Errno) syscall.Errno {
	i.disk.mu.Lock()
	defer i.disk.mu.Unlock()
	if i.disk.failed {
		return syscall.EIO
	}
	return operation()
}

// inodeOf returns the kernel's inode for a node. A node with several names has several inodes in the kernel, which is
// correct as long as no program has the file open under two names.
func (i *inode) inodeOf(ctx context.Context, n *node) *fs.Inode {
	return i.NewInode(ctx, &inode{disk: i.disk, node: n}, fs.StableAttr{Mode: n.mode & syscall.S_IFMT})
}

func (n *node) fill(out *fuse.Attr) {
	out.Mode, out.Nlink, out.Size = n.mode, n.links, uint64(len(n.seen))
	out.Blksize, out.Blocks = page, (out.Size+511)/512
	out.Uid, out.Gid = n.uid, n.gid
	out.SetTimes(&n.modified, &n.modified, &n.modified)
}

func (i *inode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (child *fs.Inode, errno syscall.Errno) {
	errno = i.in(func() syscall.Errno {
		n := i.node.entries[name]
		if n == nil {
			return syscall.ENOENT
		}
		n.fill(&out.Attr)
		if child = i.GetChild(name); child == nil || child.Operations().(*inode).node != n {
			child = i.inodeOf(ctx, n)
		}
		return fs.OK
	})
	return child, errno
}

func (i *inode) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	return i.in(func() syscall.Errno { i.node.fill(&out.Attr); return fs.OK })
}

func (i *inode) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	return i.in(func() syscall.Errno {
		n := i.node
		if size, ok := in.GetSize(); ok {
			n.resize(int64(size))
		}
		if mode, ok := in.GetMode(); ok {
			n.mode = n.mode&syscall.S_IFMT | mode&0o7777
		}
		if uid, ok := in.GetUID(); ok {
			n.uid = uid
		}
		if gid, ok := in.GetGID(); ok {
			n.gid = gid
		}
		if modified, ok := in.GetMTime(); ok {
			n.modified = modified
		}
		n.fill(&out.Attr)
		return fs.OK
	})
}

func (i *inode) Readdir(context.Context) (stream fs.DirStream, errno syscall.Errno) {
	errno = i.in(func() syscall.Errno {
		var list []fuse.DirEntry
		for name, n := range i.node.entries {
			list = append(list, fuse.DirEntry{Name: name, Mode: n.mode})
		}
		stream = fs.NewListDirStream(list)
		return fs.OK
	})
	return stream, errno
}

func (i *inode) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_KEEP_CACHE, i.in(func() syscall.Errno { return fs.OK })
}

func (i *inode) Read(_ context.Context, _ fs.FileHandle, into []byte, offset int64) (result fuse.ReadResult, errno syscall.Errno) {
	errno = i.in(func() syscall.Errno {
		read := 0
		if offset < int64(len(i.node.seen)) {
			read = copy(into, i.node.seen[offset:])
		}
		result = fuse.ReadResultData(into[:read])
		return fs.OK
	})
	return result, errno
}

func (i *inode) Write(_ context.Context, _ fs.FileHandle, data []byte, offset int64) (uint32, syscall.Errno) {
	return uint32(len(data)), i.in(func() syscall.Errno {
		i.node.write(data, offset)
		i.node.modified = time.Now()
		return fs.OK
	})
}

func (i *inode) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	return i.in(func() syscall.Errno { i.disk.sync(i.node); return fs.OK })
}

// add creates an entry of a folder.
func (i *inode) add(ctx context.Context, name string, n *node, out *fuse.EntryOut) (child *fs.Inode, errno syscall.Errno) {
	errno = i.in(func() syscall.Errno {
		if i.node.entries[name] != nil {
			return syscall.EEXIST
		}
		if caller, ok := fuse.FromContext(ctx); ok {
			n.uid, n.gid = caller.Uid, caller.Gid
		}
		n.modified, n.links = time.Now(), 1
		i.disk.change(i.node, name, n)
		n.fill(&out.Attr)
		child = i.inodeOf(ctx, n)
		return fs.OK
	})
	return child, errno
}

func (i *inode) Create(ctx context.Context, name string, _, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	child, errno := i.add(ctx, name, &node{mode: syscall.S_IFREG | mode&0o7777}, out)
	return child, nil, fuse.FOPEN_KEEP_CACHE, errno
}

func (i *inode) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return i.add(ctx, name, &node{mode: syscall.S_IFDIR | mode&0o7777, entries: map[string]*node{}}, out)
}

func (i *inode) Symlink(ctx context.Context, target, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return i.add(ctx, name, &node{mode: syscall.S_IFLNK | 0o777, target: target}, out)
}

func (i *inode) Readlink(context.Context) ([]byte, syscall.Errno) {
	return []byte(i.node.target), i.in(func() syscall.Errno { return fs.OK })
}

func (i *inode) Link(ctx context.Context, target fs.InodeEmbedder, name string, out *fuse.EntryOut) (child *fs.Inode, errno syscall.Errno) {
	errno = i.in(func() syscall.Errno {
		n := target.(*inode).node
		if i.node.entries[name] != nil {
			return syscall.EEXIST
		}
		n.links++
		i.disk.change(i.node, name, n)
		n.fill(&out.Attr)
		child = target.EmbeddedInode()
		return fs.OK
	})
	return child, errno
}

func (i *inode) Unlink(_ context.Context, name string) syscall.Errno {
	return i.in(func() syscall.Errno {
		if n := i.node.entries[name]; n != nil {
			n.links--
		}
		i.disk.change(i.node, name, nil)
		return fs.OK
	})
}

func (i *inode) Rmdir(_ context.Context, name string) syscall.Errno {
	return i.in(func() syscall.Errno {
		if n := i.node.entries[name]; n != nil && len(n.entries) > 0 {
			return syscall.ENOTEMPTY
		}
		i.disk.change(i.node, name, nil)
		return fs.OK
	})
}

func (i *inode) Rename(_ context.Context, name string, to fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	return i.in(func() syscall.Errno {
		folder, n := to.(*inode).node, i.node.entries[name]
		switch {
		case flags != 0: // RENAME_EXCHANGE or RENAME_NOREPLACE, which the disk doesn't support
			return syscall.EINVAL
		case n == nil:
			return syscall.ENOENT
		}
		if replaced := folder.entries[newName]; replaced != nil {
			replaced.links--
		}
		i.disk.change(i.node, name, nil)
		i.disk.change(folder, newName, n)
		return fs.OK
	})
}
