//go:build !linux

package redisschedule_test

import "syscall"

func leash() *syscall.SysProcAttr { return nil }
