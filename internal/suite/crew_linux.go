package suite

import "syscall"

// tied has the kernel kill a member when the thread that started it ends: it would live on if it hung when its standard input ends.
func tied() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
