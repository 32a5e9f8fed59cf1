//go:build unix

package testserver

import "syscall"

func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// The signals go to the group. An error means that it is gone already, which is what the callers check by other means.

func killGroup(pid int)      { _ = syscall.Kill(-pid, syscall.SIGKILL) }
func terminateGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGTERM) }
func pauseGroup(pid int)     { _ = syscall.Kill(-pid, syscall.SIGSTOP) }
func resumeGroup(pid int)    { _ = syscall.Kill(-pid, syscall.SIGCONT) }

const supported = true
