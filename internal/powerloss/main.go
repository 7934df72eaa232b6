// Command powerloss mounts a copy of a folder as a disk whose power can fail. SIGUSR1 simulates a power failure:
// afterwards each operation on the mounted disk returns EIO, and the folder contains all synced data, and either nothing
// else or random parts of the other data. Then the program waits for another signal, unmounts the disk and ends. SIGTERM
// without a power failure writes all data to the folder, unmounts the disk and ends the program. It needs Linux with
// FUSE, and must run as root.
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

func main() {
	folder := flag.String("folder", "", "the folder whose copy is mounted")
	mount := flag.String("mount", "", "where to mount the disk")
	seed := flag.Uint64("seed", 1, "the seed for choosing at random which unsynced data survives the power failure")
	flag.Parse()
	if err := run(*folder, *mount, *seed); err != nil {
		fmt.Fprintln(os.Stderr, "powerloss:", err)
		os.Exit(1)
	}
}

func run(folder, mount string, seed uint64) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGTERM)
	root, err := load(folder)
	if err != nil {
		return err
	}
	d := &disk{root: root, journal: map[*node]bool{}}
	forever := time.Hour
	_, err = fs.Mount(mount, &inode{disk: d, node: root}, &fs.Options{
		AttrTimeout: &forever, EntryTimeout: &forever,
		MountOptions: fuse.MountOptions{AllowOther: true, DirectMountStrict: true, Options: []string{"default_permissions"}, FsName: "powerloss", MaxWrite: 1 << 17},
	})
	if err != nil {
		return fmt.Errorf("mount %s: %w", mount, err)
	}
	fmt.Println("mounted")
	defer func() { _ = syscall.Unmount(mount, syscall.MNT_DETACH) }() // programs that still use the disk get errors
	if <-signals == syscall.SIGTERM {
		return save(&image{entries: true, lucky: func() bool { return true }}, d, folder)
	}
	if err := save(d.powerFails(rand.New(rand.NewPCG(seed, 0))), d, folder); err != nil {
		return err
	}
	fmt.Println("the power has failed")
	<-signals
	return nil
}

// save replaces the folder with the data that has survived.
func save(i *image, d *disk, folder string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	return i.save(d.root, folder)
}
