package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// server is the main process of a PostgreSQL server on this machine. 0: its processor time is not
// known.
type server int

// localServer finds the server of the URL by the process of a connection.
func localServer(ctx context.Context, cfg *config) (server, error) {
	if cfg.technology() != techPostgres {
		return 0, nil
	}
	conn, err := pgx.Connect(ctx, cfg.Broker)
	if err != nil {
		return 0, errors.New("no connection") // the client's error may contain the password
	}
	backend, err := statOf(int(conn.PgConn().PID()))
	if closed := conn.Close(ctx); closed != nil {
		return 0, closed
	}
	if err != nil || backend.name != "postgres" {
		return 0, nil //nolint:nilerr // the server is on another machine, or this is not Linux
	}
	return server(backend.parent), nil
}

// cpuTime returns the processor time so far of the server's processes, also of those that ended.
func (s server) cpuTime() time.Duration {
	if s == 0 {
		return 0
	}
	main, err := statOf(int(s))
	if err != nil {
		return 0
	}
	total := main.ended + runTime(int(s))
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		if child, err := statOf(pid); err == nil && child.parent == int(s) {
			total += runTime(pid)
		}
	}
	return total
}

// stat is a part of the data of the system about a process.
type stat struct {
	name   string
	parent int
	ended  time.Duration // the processor time of children that ended, in steps of 10 ms
}

// tick is the unit of processor times in /proc/PID/stat.
const tick = 10 * time.Millisecond

// statOf reads /proc/PID/stat.
func statOf(pid int) (stat, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	head, rest, _ := strings.Cut(string(data), ") ")
	_, name, _ := strings.Cut(head, "(")
	fields := strings.Fields(rest)
	if len(fields) < 15 {
		return stat{}, fmt.Errorf("process %d: %d fields", pid, len(fields))
	}
	parent, err := strconv.Atoi(fields[1])
	user, err2 := strconv.Atoi(fields[13])
	system, err3 := strconv.Atoi(fields[14])
	return stat{name, parent, time.Duration(user+system) * tick}, errors.Join(err, err2, err3)
}

// runTime returns the processor time of a process with one thread so far, 0 if it has ended.
func runTime(pid int) time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(data), " ")
	ns, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(ns)
}
