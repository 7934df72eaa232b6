//go:build unix

package plugins

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
)

// pipeBytes is how much a connection takes before the other side has read it,
// where the system allows that: a usual batch.
const pipeBytes = 512 << 10

// newDirect makes the relay's end, and lets a command inherit the other one.
func newDirect(command *exec.Cmd) (*direct, *os.File, error) {
	ours, theirs, err := pair()
	if err != nil {
		return nil, nil, err
	}
	number := socketNumber(int(theirs.Fd()))
	command.Env = append(command.Env, directVariable+"="+fmt.Sprintf(directFormat, directFile, number))
	command.ExtraFiles = []*os.File{theirs}
	return &direct{control: ours}, theirs, nil
}

// pair makes two connected sockets that no other program inherits.
func pair() (*net.UnixConn, *os.File, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	both, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	syscall.CloseOnExec(both[0])
	syscall.CloseOnExec(both[1])
	theirs := os.NewFile(uintptr(both[1]), "the plug-in's")
	ours, err := connectionOf(both[0])
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return ours, theirs, nil
}

// connectionOf makes a connection of a socket, which it takes over.
func connectionOf(descriptor int) (*net.UnixConn, error) {
	file := os.NewFile(uintptr(descriptor), "socket")
	defer file.Close() // the connection has a copy
	connection, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	socket, ok := connection.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(errors.New("it is no Unix socket"), connection.Close())
	}
	_ = socket.SetWriteBuffer(pipeBytes)
	return socket, nil
}

// connect makes a pair and passes one end to the plug-in.
func connect(control *net.UnixConn) (*net.UnixConn, error) {
	ours, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	_, _, err = control.WriteMsgUnix([]byte{hello}, syscall.UnixRights(int(theirs.Fd())), nil)
	if err = errors.Join(err, theirs.Close()); err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	return ours, nil
}

// accept takes over an end that the relay has passed.
func accept(control *net.UnixConn) (*net.UnixConn, error) {
	rights := make([]byte, syscall.CmsgSpace(4))
	_, n, _, _, err := control.ReadMsgUnix(make([]byte, 1), rights)
	if err != nil {
		return nil, err
	}
	messages, err := syscall.ParseSocketControlMessage(rights[:n])
	if err != nil || len(messages) != 1 {
		return nil, errors.Join(err, errors.New("no socket came"))
	}
	descriptors, err := syscall.ParseUnixRights(&messages[0])
	if err != nil || len(descriptors) != 1 {
		return nil, errors.Join(err, errors.New("no socket came"))
	}
	return connectionOf(descriptors[0])
}

// saidHello looks, and doesn't wait.
func saidHello(control *net.UnixConn) bool {
	raw, err := control.SyscallConn()
	if err != nil {
		return false
	}
	var said [1]byte
	err = raw.Read(func(descriptor uintptr) bool {
		_, _ = syscall.Read(int(descriptor), said[:])
		return true
	})
	return err == nil && said[0] == hello
}

// inherited returns the plug-in's end where the relay has left it one, and says
// hello. A program in between may have closed it, and its number be another's by
// now, whose socket is left alone.
func inherited(variable string) *net.UnixConn {
	var descriptor int
	var number uint64
	if _, err := fmt.Sscanf(variable, directFormat, &descriptor, &number); err != nil || number == 0 || socketNumber(descriptor) != number {
		return nil
	}
	control, err := connectionOf(descriptor)
	if err != nil {
		return nil
	}
	if _, err := control.Write([]byte{hello}); err != nil {
		return nil
	}
	return control
}

// socketNumber tells a socket from all others of its time; 0: it isn't one.
func socketNumber(descriptor int) uint64 {
	var info syscall.Stat_t
	if syscall.Fstat(descriptor, &info) != nil || info.Mode&syscall.S_IFMT != syscall.S_IFSOCK {
		return 0
	}
	return max(info.Ino, 1) // some systems give none
}
