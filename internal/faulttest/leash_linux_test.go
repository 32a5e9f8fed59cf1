package faulttest

import "syscall"

// leash makes the kernel kill a process when the thread that started it ends. So no process
// outlives the tests, however the tests end.
func leash() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
