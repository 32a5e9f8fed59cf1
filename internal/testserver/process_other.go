//go:build !unix

package testserver

import (
	"context"
	"syscall"
)

// supported is false without process groups: every start checks it first and fails.

const supported = false

// The functions below do nothing: no process is ever started.

func ownGroup() *syscall.SysProcAttr { return nil }
func killGroup(int)                  {}
func terminateGroup(int, bool)       {}
func pauseGroup(int)                 {}
func resumeGroup(int)                {}
func childrenOf(int) []int           { return nil }
func killOrphan(int)                 {}
func awaitEnd(int)                   {}

func asUser(string, ...string) ([]string, error) { return nil, nil }

func reserve(string) bool { return true }

func lockFile(context.Context, string) (func(), error) { return func() {}, nil }
