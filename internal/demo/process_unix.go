package demo

import (
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// nobody is the user id of last resort.
const nobody = 65534

// killGroup ends a process and what it started.
func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) } // gone already is as good

// unprivileged yields the user that Postgres runs as where the demo was started by root: initdb refuses root.
func unprivileged() *syscall.Credential {
	if syscall.Geteuid() != 0 {
		return nil
	}
	id := uint64(nobody)
	if u, err := user.Lookup("nobody"); err == nil {
		if n, err := strconv.ParseUint(u.Uid, 10, 32); err == nil {
			id = n
		}
	}
	return &syscall.Credential{Uid: uint32(id), Gid: uint32(id), NoSetGroups: false}
}

// as makes a command run as a user; nil is the demo's own.
func as(cmd *exec.Cmd, who *syscall.Credential) {
	if who != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who}
	}
}
