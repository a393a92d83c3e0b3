package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
)

// subscription is a subscription as the admin listener tells it; the order of the fields is that of --output json.
type subscription struct {
	Stream         string `json:"stream"`
	Shard          uint32 `json:"shard"`
	SubscriberID   uint64 `json:"subscriber_id"`
	SubscriptionID uint64 `json:"subscription_id"`
	Connection     uint64 `json:"connection"`
	Peer           string `json:"peer"`
	State          string `json:"state"`
	Policy         string `json:"policy"`
	Depth          int    `json:"depth"`
	Capacity       int    `json:"capacity"`
	Dropped        uint64 `json:"dropped"`
	Position       uint64 `json:"position"`
	Tail           uint64 `json:"tail"`
	LagRecords     uint64 `json:"lag_records"`
	LagBytes       uint64 `json:"lag_bytes"`
	AgeMillis      uint64 `json:"age_ms"`
}

func (a *app) subscriptionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "subscription",
		Aliases: []string{"subscriptions"},
		Short:   "Look at who subscribes and how far behind they are",
		Args:    unknownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.subscriptionListCommand())
	return cmd
}

func (a *app) subscriptionListCommand() *cobra.Command {
	var noHeaders, dropping bool
	cmd := &cobra.Command{
		Use:   "ls [STREAM]",
		Short: "List the subscriptions of the namespace, or of one stream",
		Long: "Ls lists subscriptions, one for each shard that a client reads.\n\n" +
			"STATE is live (gets records as they come), catching_up (reads the log), blocked (holds publishers back, as the stream asks for),\n" +
			"blocked_by_peer (the client does not read), joining (the client has not taken the event stream yet) or ended (the rest is on its way).\n" +
			"LAG is what the client has not been sent, SIZE of it an estimate, QUEUE the frames that wait for it, DROPPED the records it lost.",
		Example:           "  felix subscription ls\n  felix subscription ls orders -o json",
		Args:              withArgs(0, 1, "the name of a stream, or nothing"),
		Annotations:       map[string]string{outputs: "table json"},
		ValidArgsFunction: a.completeStream,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.adminClient(cmd)
			if err != nil {
				return err
			}
			defer c.close()
			name := ""
			if len(args) > 0 {
				name = args[0]
			}
			all, err := a.listSubscriptions(cmd.Context(), c, name, dropping)
			if err != nil {
				return err
			}
			if a.output == "json" {
				return a.printJSON(all)
			}
			if len(all) == 0 {
				what, example := "in namespace "+a.namespace+" of tenant "+a.tenant, "STREAM"
				if name != "" {
					what, example = "of stream "+name, name
				}
				if dropping {
					what += " that lost records"
				}
				_, err := fmt.Fprintf(a.stderr, "No subscriptions %s. Make one: felix sub %s\n", what, example)
				return err
			}
			head := []string{"STREAM", "SHARD", "CLIENT", "STATE", "ON SLOW", "LAG", "SIZE", "QUEUE", "DROPPED", "AGE"}
			if noHeaders {
				head = nil
			}
			var rows [][]string
			for _, s := range all {
				rows = append(rows, []string{
					s.Stream, strconv.Itoa(int(s.Shard)), s.Peer, s.State, onSlowFlag(s.Policy),
					humanize.Comma(int64(s.LagRecords)), bytesText(int64(s.LagBytes)), fmt.Sprintf("%d/%d", s.Depth, s.Capacity),
					humanize.Comma(int64(s.Dropped)), durationText(time.Duration(s.AgeMillis) * time.Millisecond),
				})
			}
			return printTable(a.stdout, head, rows)
		},
	}
	cmd.Flags().BoolVar(&noHeaders, "no-headers", false, "leave the heading out")
	cmd.Flags().BoolVar(&dropping, "dropping", false, "only those that lost records")
	return cmd
}

// listSubscriptions reads every page of the namespace, or of a stream.
func (a *app) listSubscriptions(ctx context.Context, c *adminClient, name string, dropping bool) ([]subscription, error) {
	path := a.namespaces() + "/" + url.PathEscape(a.namespace) + "/subscriptions"
	if name != "" {
		path = a.streams(name) + "/subscriptions"
	}
	query := url.Values{}
	if dropping {
		query.Set("dropping", "true")
	}
	all := []subscription{}
	for {
		var page struct {
			Items      []subscription `json:"items"`
			NextCursor string         `json:"next_cursor"`
		}
		if _, err := c.do(ctx, http.MethodGet, path+"?"+query.Encode(), nil, &page); err != nil {
			return nil, explainRefusal(err, "the subscriptions cannot be listed", name)
		}
		all = append(all, page.Items...)
		if page.NextCursor == "" {
			return all, nil
		}
		query.Set("cursor", page.NextCursor)
	}
}
