package suite

import "syscall"

// tied makes the kernel kill a member when the thread that started it ends. A member that hangs
// would otherwise survive the end of its standard input.
func tied() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
