package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
)

func (a *app) versionCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version of this program",
		Long: "Version prints one line: the version of this program, the revision that it was built from, the Go version and\n" +
			"the system. It needs no broker.",
		Example: "  swarmiji version\n" +
			"  swarmiji version -o json",
		Args:        cobra.NoArgs,
		Annotations: map[string]string{cli.Offline: "yes"},
		RunE: func(*cobra.Command, []string) error {
			v := versionOutput{Version: "unknown", Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}
			if info, ok := debug.ReadBuildInfo(); ok {
				v.Version = info.Main.Version
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						v.Revision = s.Value
					}
				}
			}
			return a.Show(v, &cli.Table{Head: []string{fmt.Sprintf("swarmiji %s %s %s %s", v.Version, v.Revision, v.Go, v.System)}})
		},
	}
}

// versionOutput is the output of version.
type versionOutput struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	System   string `json:"system"`
}
