package send

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/client"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/proof"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/reply"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/translators"
)

// translation is a message in other words.
type translation struct {
	Message json.RawMessage     `json:"message"`
	Header  map[string][]string `json:"header,omitempty"` // fields that go with it
	Losses  []string            `json:"losses"`
}

func translateCommand(c *client.Client) *cobra.Command {
	var from, to string
	var detail bool
	cmd := &cobra.Command{
		Use:   "translate --from PROTOCOL --to PROTOCOL FILE",
		Short: "Translate a message here, without a gateway, and say what is lost (FILE -: standard input)",
		Long: "Translate a message here, without a gateway. A protocol is a binding such as a2a-v1,\n" +
			"optionally with a version: mcp-v1@2025-11-25. Without an agent, text becomes a call of\n" +
			"a tool named message.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := sending{message: args[0]}.body(cmd.InOrStdin())
			if err != nil {
				return err
			}
			out, err := translateOffline(from, to, body)
			if err != nil {
				return err
			}
			return c.Show(cmd, out, func(w io.Writer) error {
				if detail {
					return out.print(w)
				}
				_, err := fmt.Fprintf(w, "%s\n", terminal.Visible(out.Message))
				return errors.Join(err, proof.LossesOf(out.Losses).Write(w))
			})
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "the message's protocol, with an optional @version")
	cmd.Flags().StringVar(&to, "to", "", "the protocol to translate to, with an optional @version")
	cmd.Flags().BoolVarP(&detail, "verbose", "v", false, "print the losses with their codes and places")
	for _, name := range []string{"from", "to"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			cmd.RunE = func(*cobra.Command, []string) error { return err }
		}
	}
	return cmd
}

// translateOffline is one leg as the gateway does it, without evidence.
func translateOffline(from, to string, body []byte) (translation, error) {
	source, sourceVersion, err := reply.Protocol(from)
	if err != nil {
		return translation{}, err
	}
	dest, destVersion, err := reply.Protocol(to)
	if err != nil {
		return translation{}, err
	}
	message, err := source.Decode(translators.Wire{Binding: source.Info().Binding, Version: sourceVersion, Body: body})
	if err != nil {
		return translation{}, err
	}
	message.Correlation.MessageID = cmp.Or(message.Correlation.MessageID, string(ect.NewID()))
	if message.Correlation.WireID == nil {
		message.Correlation.WireID = json.RawMessage(`"` + string(ect.NewID()) + `"`)
	}
	wire, added, err := dest.Encode(message, translators.Target{Version: destVersion, Stamp: noSender()})
	if err != nil {
		return translation{}, err
	}
	out := translation{Message: reply.HexJSON(wire.Body), Header: wire.Header, Losses: []string{}}
	for _, loss := range slices.Concat(message.Losses, added) {
		out.Losses = append(out.Losses, loss.String())
	}
	return out, nil
}

// noSender is the sender of a message that is only translated, in protocols that name the sender: a
// DID without a key, which a receiver cannot take for a real one.
func noSender() translators.Addressing {
	return translators.Addressing{From: "did:web:gateway.invalid", At: time.Now()}
}

func (t translation) print(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "%s\n", terminal.Visible(t.Message)); err != nil {
		return err
	}
	for _, loss := range t.Losses {
		fmt.Fprintln(w, "loss", terminal.Line(loss))
	}
	return nil
}
