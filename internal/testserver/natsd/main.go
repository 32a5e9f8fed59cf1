// Command natsd is the NATS server of the module's tests: the real one, of the version in go.mod,
// with the flags of the real program, of which only -c is used. It is a process of its own, so that
// a test can kill and freeze it.
package main

import (
	"flag"
	"os"

	"github.com/nats-io/nats-server/v2/server"
)

// main runs the server with the arguments of the command line, and prints an error and exits if
// that fails.
func main() {
	if err := run(os.Args[1:]); err != nil {
		server.PrintAndDie("natsd: " + err.Error())
	}
}

// run serves until the process gets a signal; the server handles them itself.
func run(args []string) error {
	fs := flag.NewFlagSet("natsd", flag.ContinueOnError)
	opts, err := server.ConfigureOptions(fs, args, server.PrintServerAndExit, fs.PrintDefaults, server.PrintTLSHelpAndDie)
	if err != nil {
		return err
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	if err := server.Run(s); err != nil {
		return err
	}
	s.WaitForShutdown()
	return nil
}
