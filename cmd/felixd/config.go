package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"felix"
)

// configCommand is "felixd config": looking at a configuration without starting a broker.
func configCommand(p process, load func() (*felix.Settled, error)) *cobra.Command {
	config := &cobra.Command{
		Use:   "config",
		Short: "Look at the configuration without starting",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return fmt.Errorf("config needs a command: show or check")
		},
	}

	var effective bool
	show := &cobra.Command{
		Use:   "show",
		Short: "Print the settings that were given, with --effective all of them, and where each comes from",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			settled, err := load()
			printValues(p, settled, effective)
			return err
		},
	}
	show.Flags().BoolVar(&effective, "effective", false, "print every setting, defaults too")

	check := &cobra.Command{
		Use:   "check",
		Short: "Report every problem of the configuration",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			settled, err := load()
			for _, warning := range settled.Warnings {
				fmt.Fprintf(p.stderr, "felixd: warning: %s\n", warning)
			}
			if err != nil {
				return err
			}
			fmt.Fprintln(p.stdout, "The configuration is good.")
			return nil
		},
	}
	config.AddCommand(show, check)
	return config
}

// printValues prints key, value and origin of each setting.
func printValues(p process, settled *felix.Settled, effective bool) {
	table := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "KEY\tVALUE\tORIGIN")
	shown := 0
	for _, v := range settled.Values {
		if v.Origin == felix.OriginDefault && !effective {
			continue
		}
		shown++
		value := v.Text
		if value == "" {
			value = "-"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", v.Key, value, v.Origin)
	}
	if shown == 0 {
		fmt.Fprintln(p.stdout, "Nothing is set; every setting has its default. felixd config show --effective prints them.")
		return
	}
	table.Flush()
	if !effective {
		fmt.Fprintf(p.stdout, "%d more have their defaults; --effective shows them.\n", len(settled.Values)-shown)
	}
}
