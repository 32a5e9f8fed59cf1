package redisschedule_test

import "syscall"

// leash makes the kernel kill a child when the thread that started it ends, so that none outlives the tests.
func leash() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
