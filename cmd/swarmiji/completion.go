package main

import (
	"github.com/spf13/cobra"
)

func (a *app) completionCmd(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print a shell's script that completes commands",
		Long:  "Completion prints a script for the shell; the shell reads it, and completes this program's commands and flags from then on.",
		Example: "  source <(swarmiji completion bash)\n" +
			"  swarmiji completion fish > ~/.config/fish/completions/swarmiji.fish",
		ValidArgs:   []string{"bash", "zsh", "fish", "powershell"},
		Args:        cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		Annotations: map[string]string{offline: "yes"},
		RunE: func(_ *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.stdout, true)
			case "zsh":
				return root.GenZshCompletion(a.stdout)
			case "fish":
				return root.GenFishCompletion(a.stdout, true)
			}
			return root.GenPowerShellCompletionWithDesc(a.stdout)
		},
	}
}
