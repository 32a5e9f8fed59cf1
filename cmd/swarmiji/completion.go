package main

import (
	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
)

func (a *app) completionCmd(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print a script for a shell that completes commands",
		Long: "Completion prints a script. A shell that has read it completes the commands and flags of this program with the\n" +
			"tab key. It needs no broker.",
		Example: "  source <(swarmiji completion bash)\n" +
			"  swarmiji completion fish > ~/.config/fish/completions/swarmiji.fish",
		ValidArgs:   []string{"bash", "zsh", "fish", "powershell"},
		Args:        cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		Annotations: map[string]string{cli.Offline: "yes"},
		RunE: func(_ *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.Stdout, true)
			case "zsh":
				return root.GenZshCompletion(a.Stdout)
			case "fish":
				return root.GenFishCompletion(a.Stdout, true)
			}
			return root.GenPowerShellCompletionWithDesc(a.Stdout)
		},
	}
}
