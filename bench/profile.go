package main

import (
	"errors"
	"os"
	"runtime"
	"runtime/pprof"
)

// profiled runs work with the profiles that the flags request.
func profiled(cfg *config, work func() (Report, error)) (report Report, err error) {
	if cfg.CPUProfile != "" {
		f, err := os.Create(cfg.CPUProfile)
		if err != nil {
			return Report{}, err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return Report{}, err
		}
		defer pprof.StopCPUProfile()
	}
	if cfg.MemProfile != "" {
		runtime.MemProfileRate = 512 // most allocations are small
		defer func() { err = errors.Join(err, writeAllocs(cfg.MemProfile)) }()
	}
	return work()
}

func writeAllocs(path string) error {
	f, err := os.Create(path) //nolint:gosec // the user names the file
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup("allocs").WriteTo(f, 0), f.Close())
}
