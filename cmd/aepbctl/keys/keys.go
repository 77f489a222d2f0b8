// Package keys has the commands that make, list and revoke API keys in the file that api_keys.file of a gateway
// names. They ask no gateway: it reads the file again when it changes.
package keys

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/client"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/program"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity/apikey"
)

// How long a key may work.
const (
	usualDays = 90
	mostDays  = 3650
)

// view is a key as it is printed: never with its hash.
type view struct {
	ID      string       `json:"id"`
	Caller  ect.Identity `json:"caller"`
	Created time.Time    `json:"created"`
	Until   time.Time    `json:"until"`
	Ended   bool         `json:"ended"`
	Key     string       `json:"key,omitempty"` // of a new one
}

// Commands are the commands of the group.
func Commands(c *client.Client) []*cobra.Command {
	return []*cobra.Command{program.Group("keys", "Make, list and revoke API keys of callers, in the file that api_keys.file names",
		newCommand(c, time.Now), listCommand(c, time.Now), revokeCommand())}
}

// fileFlag adds the flag that names the file.
func fileFlag(cmd *cobra.Command, file *string) *cobra.Command {
	cmd.Flags().StringVar(file, "file", "", "file with the keys, as api_keys.file names it (required)")
	_ = cmd.MarkFlagRequired("file") // the flag is there
	return cmd
}

func newCommand(c *client.Client, now func() time.Time) *cobra.Command {
	var file, caller, id string
	days := usualDays
	cmd := &cobra.Command{
		Use: "new", Short: "Make a key, and print it once: the file has only its hash", Args: cobra.NoArgs,
		Example: "  aepbctl keys new --file keys.yaml --caller spiffe://example.com/reports --days 30",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if days < 1 || days > mostDays {
				return program.Misuse(fmt.Errorf("--days is 1 to %d, not %d", mostDays, days))
			}
			at := now()
			key, text, err := apikey.New(id, ect.Identity(caller), at, at.AddDate(0, 0, days))
			if err != nil {
				return program.Misuse(err)
			}
			err = change(file, func(keys []apikey.Key) ([]apikey.Key, error) {
				if find(keys, key.ID) >= 0 {
					return nil, fmt.Errorf("%s has a key %s already: revoke it, or choose another --id", terminal.Word(file), key.ID)
				}
				return append(keys, key), nil
			})
			if err != nil {
				return err
			}
			made := viewOf(key, at)
			made.Key = text
			fmt.Fprintf(cmd.ErrOrStderr(), "key %s of %s works until %s; it is shown this once\n", key.ID, terminal.Word(key.Caller), stamp(key.Until))
			return c.Show(cmd, made, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, text)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&caller, "caller", "", "SPIFFE ID of the caller, in the trust domain of the gateway (required)")
	cmd.Flags().StringVar(&id, "id", "", "id of the key, 1 to 32 of a-z 0-9 - (default: a random one)")
	cmd.Flags().IntVar(&days, "days", usualDays, "how many days the key works")
	_ = cmd.MarkFlagRequired("caller") // the flag is there
	return fileFlag(cmd, &file)
}

func listCommand(c *client.Client, now func() time.Time) *cobra.Command {
	var file string
	return fileFlag(&cobra.Command{
		Use: "list", Short: "List the keys: ids, callers and ends", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			keys, err := apikey.Load(file, "")
			if err != nil {
				return err
			}
			views := make([]view, len(keys))
			for i, k := range keys {
				views[i] = viewOf(k, now())
			}
			return c.Show(cmd, map[string][]view{"keys": views}, func(w io.Writer) error { return printKeys(w, views) })
		},
	}, &file)
}

func revokeCommand() *cobra.Command {
	var file string
	return fileFlag(&cobra.Command{
		Use: "revoke ID", Short: "Revoke a key: the gateway refuses it some seconds later", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := change(file, func(keys []apikey.Key) ([]apikey.Key, error) {
				at := find(keys, args[0])
				if at < 0 {
					return nil, fmt.Errorf("%s has no key %s; aepbctl keys list shows them", terminal.Word(file), terminal.Word(args[0]))
				}
				return slices.Delete(keys, at, at+1), nil
			})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "key %s is revoked\n", terminal.Word(args[0]))
			return err
		},
	}, &file)
}

// change writes what becomes of the keys of a file. One that is not there has none.
func change(file string, edit func([]apikey.Key) ([]apikey.Key, error)) error {
	return alone(file, func(target string) error {
		keys, err := apikey.Load(target, "")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if keys, err = edit(keys); err != nil {
			return err
		}
		text, err := apikey.Format(keys)
		if err != nil {
			return err
		}
		return replace(target, text)
	})
}

func find(keys []apikey.Key, id string) int {
	return slices.IndexFunc(keys, func(k apikey.Key) bool { return k.ID == id })
}

func viewOf(k apikey.Key, now time.Time) view {
	return view{ID: k.ID, Caller: k.Caller, Created: k.Created.UTC(), Until: k.Until.UTC(), Ended: k.Ended(now)}
}

func printKeys(w io.Writer, views []view) error {
	if len(views) == 0 {
		_, err := fmt.Fprintln(w, "no keys")
		return err
	}
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tCALLER\tCREATED\tUNTIL\tSTATE")
	for _, v := range views {
		state := "works"
		if v.Ended {
			state = "ended"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", v.ID, terminal.Word(v.Caller), stamp(v.Created), stamp(v.Until), state)
	}
	return table.Flush()
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }
