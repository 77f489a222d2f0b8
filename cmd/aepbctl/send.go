package main

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

type sending struct {
	from, to, dest, file, text, tool, args, task string
	detail                                       bool // print the messages and tokens, not what they say
}

// delivery is the answer to one message, with its proof.
type delivery struct {
	Reply  json.RawMessage `json:"reply"`
	Losses []string        `json:"losses"`
	ECTs   []tokenView     `json:"ects"`
}

func sendCommand(t *target) *cobra.Command {
	var s sending
	cmd := &cobra.Command{
		Use:     "send [--to] AGENT (--text TEXT | --tool NAME --args JSON | --file FILE)",
		Short:   "Send one message through the gateway, with an ECT of our own",
		Example: "  aepbctl send --to calculator --tool add --args '{\"a\": 1, \"b\": 2}'\n  aepbctl send --to concierge --text 'good evening'",
		Args:    cobra.MaximumNArgs(1),
		PreRunE: func(_ *cobra.Command, args []string) error { return s.check(args) },
		RunE:    func(cmd *cobra.Command, _ []string) error { return t.send(cmd, s) },
	}
	flags := cmd.Flags()
	flags.StringVar(&s.from, "from", string(a2a.Binding), "the protocol we speak")
	flags.StringVar(&s.dest, "to", "", "the agent: a directory name or SPIFFE id")
	flags.StringVar(&s.to, "as", "", "the protocol to translate to (default: what the agent speaks)")
	flags.StringVar(&s.file, "file", "", "a native message; - reads standard input")
	flags.StringVar(&s.text, "text", "", "a text message")
	flags.StringVar(&s.tool, "tool", "", "the tool or skill to call")
	flags.BoolVarP(&s.detail, "verbose", "v", false, "print the reply, losses and tokens as they came")
	flags.StringVar(&s.args, "args", "", "its arguments, a JSON object; with --task alone the values of the form that is asked for")
	flags.StringVar(&s.task, "task", "", "the task that waits for this message, such as an answer")
	return cmd
}

// check takes the agent from the arguments, and finds what the flags lack.
func (s *sending) check(args []string) error {
	if len(args) == 1 && s.dest != "" {
		return errors.New("name the agent once: as an argument, or with --to")
	}
	s.dest = cmp.Or(s.dest, strings.Join(args, ""))
	given, form := 0, ""
	if s.task != "" && s.tool == "" {
		form = s.args
	}
	for _, flag := range []string{s.text, s.tool, s.file, form} {
		if flag != "" {
			given++
		}
	}
	switch {
	case s.dest == "":
		return errors.New("name the agent: aepbctl send AGENT")
	case given != 1:
		return errors.New("give one of --text, --tool, --file")
	case s.args != "" && s.tool == "" && s.task == "":
		return errors.New("--args goes with --tool: give the tool's name too")
	case s.task != "" && s.file != "":
		return errors.New("--task goes with --text, --tool or --args: a message in a file names its task itself")
	case s.args != "":
		return checkObject("--args", s.args)
	default:
		return nil
	}
}

// checkObject says where text stops being a JSON object. It quotes no more of it than one character.
func checkObject(flag, text string) error {
	var object map[string]json.RawMessage
	err := json.Unmarshal([]byte(text), &object)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		what, _, _ := strings.Cut(syntax.Error(), " looking for ")
		what, _, _ = strings.Cut(what, " after ")
		return fmt.Errorf("%s must be a JSON object: %s at %d", flag, what, syntax.Offset)
	}
	if mistype, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s must be a JSON object, not a JSON %s", flag, mistype.Value)
	}
	if err == nil && object == nil {
		err = errors.New("it is null")
	}
	if err != nil {
		return fmt.Errorf("%s must be a JSON object: %w", flag, err)
	}
	return nil
}

func (t *target) send(cmd *cobra.Command, s sending) error {
	body, err := s.message(cmd.InOrStdin())
	if err != nil {
		return err
	}
	base, err := t.base(t.gateway, "public")
	if err != nil {
		return err
	}
	form, version, err := protocol(s.from)
	if err != nil {
		return err
	}
	encoded := func(body []byte) []byte {
		return translators.Wire{Body: body, Hasher: translators.HasherOf(form)}.HashInput()
	}
	token, err := t.source(cmd, base, encoded(body))
	if err != nil {
		return err
	}
	query := url.Values{"from": {s.from}, "dest": {s.dest}}
	if s.to != "" {
		query.Set("to", s.to)
	}
	header := http.Header{"Content-Type": {form.Info().Media[0]}, ect.HeaderName: {token.Compact()}}
	began, stop := time.Now(), terminal.Progress(cmd, "waiting for "+s.dest)
	defer stop()
	got, err := t.call(cmd.Context(), http.MethodPost, base+"/aepb/translate?"+query.Encode(), header, body)
	if err != nil {
		return err
	}
	took := time.Since(began)
	stop()
	evidence, err := ect.ParseHeader(got.header.Values(ect.HeaderName), ect.Limits{})
	if err != nil {
		return err
	}
	views, err := t.verifyAll(cmd.Context(), append([]string{token.Compact()}, evidence...))
	if err != nil {
		return err
	}
	d := delivery{Reply: asJSON(got.body), Losses: losses(views), ECTs: views}
	if got.status != http.StatusOK {
		return errors.Join(s.advise(t.explain(cmd.Context(), got, s.dest)), t.show(cmd, d, func(w io.Writer) error {
			if s.detail {
				return printChain(w, views)
			}
			fmt.Fprintln(w, "state:", terminal.Bad(w, "refused"))
			return printProof(w, views, nil, "")
		}))
	}
	wire := translators.Wire{Binding: form.Info().Binding, Version: version, Media: form.Info().Media[0], Body: got.body, Re: canonical.OpInvoke}
	sent, hashes := encoded(body), ", hashes match"
	if s.task != "" { // what an agent is told meanwhile stands in the records of its task
		sent, hashes = nil, ", hash of the reply matches"
	}
	proof, r := covers(views, sent, encoded(got.body)), read(form, wire)
	r.took = took
	return errors.Join(t.show(cmd, d, func(w io.Writer) error {
		if s.detail {
			return d.print(w)
		}
		return errors.Join(r.write(w), reportOf(d.Losses).write(w), printProof(w, views, proof, hashes), r.next(w, s.dest))
	}), proof, r.err)
}

// advise says how this program chooses among the tools of an agent.
func (s sending) advise(refused error) error {
	if s.text == "" || !strings.Contains(refused.Error(), "this agent has several skills") {
		return refused
	}
	return fmt.Errorf("%w; choose one: aepbctl send --to %s --tool NAME --args '{…}'", refused, terminal.Word(s.dest))
}

// printProof says whether the proof of an exchange holds, and under which workflow it is found.
func printProof(w io.Writer, views []tokenView, proof error, hashes string) error {
	workflow := "workflow " + terminal.Word(views[0].Workflow)
	if proof == nil {
		proof = sound(views)
	}
	if proof != nil {
		_, err := fmt.Fprintf(w, "proof: %s: %s (%s)\n", terminal.Bad(w, "NOT VALID"), terminal.Line(proof.Error()), workflow)
		return err
	}
	_, err := fmt.Fprintf(w, "proof: %d %s valid, linked%s (%s)\n", len(views), terminal.Plural(len(views), "signature"), hashes, workflow)
	return err
}

// sound: each token is verified, and each but ours names a parent among them.
func sound(views []tokenView) error {
	for i, v := range views {
		if !v.Verified {
			return fmt.Errorf("the proof does not hold: %s", v.Problem)
		}
		if i > 0 && !slices.ContainsFunc(views, func(other tokenView) bool { return slices.Contains(v.Parents, other.ID) }) {
			return fmt.Errorf("record %s is not linked to the others", v.ID)
		}
	}
	return nil
}

// covers says whether the proof is good and about this very exchange: a token
// below ours for what we sent (nil: whatever it was), and one for what came back. The first view is ours.
func covers(views []tokenView, sent, got []byte) error {
	for _, v := range views {
		if !v.Verified {
			return fmt.Errorf("the proof does not hold: %s", v.Problem)
		}
	}
	ours := views[0].ID
	if !slices.ContainsFunc(views, func(v tokenView) bool {
		if part, _ := v.Ext.String(ect.ExtLeg); part == "reply" && v.Input == "" || sent == nil { // the gateway's own question, for which it asked no agent
			return slices.Contains(v.Parents, ours)
		}
		return slices.Contains(v.Parents, ours) && v.Input == ect.Hash(sent)
	}) {
		return errors.New("no proof that the message was translated as it was sent")
	}
	if !slices.ContainsFunc(views, func(v tokenView) bool { return v.Output == ect.Hash(got) }) {
		return errors.New("no proof that the reply came back as it is")
	}
	return nil
}

// source mints the ECT of the message that we are about to send: it is ours,
// and its out_hash is the hash of these very bytes (R4).
func (t *target) source(cmd *cobra.Command, base string, body []byte) (ect.Token, error) {
	got, err := t.call(cmd.Context(), http.MethodGet, base+"/.well-known/aepb/gateway", nil, nil)
	if err != nil {
		return ect.Token{}, err
	}
	var gateway struct {
		ID string `json:"gateway_id"`
	}
	if got.status != http.StatusOK || json.Unmarshal(got.body, &gateway) != nil || gateway.ID == "" {
		return ect.Token{}, errors.New("there is no AEPB gateway at " + base)
	}
	signer, err := t.signer()
	if err != nil {
		return ect.Token{}, err
	}
	return signer.Sign(ect.Claims{
		Act: "send_task", Audience: []string{gateway.ID}, Workflow: string(ect.NewID()), OutputHash: ect.Hash(body),
	})
}

// message is the native message: the file's, or one built from the flags.
func (s sending) message(stdin io.Reader) ([]byte, error) {
	switch {
	case s.file == "-":
		return io.ReadAll(io.LimitReader(stdin, translators.DefaultBodyLimit))
	case s.file != "":
		return os.ReadFile(s.file)
	}
	form, version, err := protocol(s.from)
	if err != nil {
		return nil, err
	}
	id := string(ect.NewID())
	invoke := &canonical.Invoke{}
	capability := &canonical.Capability{ID: s.tool, Profile: canonical.ProfileTyped}
	if s.tool != "" {
		invoke.Call = &canonical.Call{Name: s.tool, Args: json.RawMessage(cmp.Or(s.args, "{}"))}
	} else {
		capability = nil
		part := canonical.Part{Kind: canonical.KindText, Text: s.text}
		if s.text == "" {
			part = canonical.Part{Kind: canonical.KindData, Data: json.RawMessage(s.args)}
		}
		invoke.Turn = canonical.Content{ID: id, Role: canonical.RoleCaller, Parts: []canonical.Part{part}}
	}
	wire, _, err := form.Encode(&canonical.Message{
		Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Body: invoke,
		Correlation: canonical.Correlation{WireID: json.RawMessage(`"` + id + `"`), MessageID: id}, Conversation: canonical.Conversation{TaskID: s.task},
	}, translators.Target{Version: version, Capability: capability, Stamp: noSender()})
	return wire.Body, err
}

// asJSON is a message as a JSON value: itself if it is one, else its bytes in
// hexadecimal digits.
func asJSON(body []byte) json.RawMessage {
	if json.Valid(body) {
		return body
	}
	quoted, _ := json.Marshal(hex.EncodeToString(body))
	return quoted
}

func (d delivery) print(w io.Writer) error {
	answer := translation{Message: d.Reply, Losses: d.Losses}
	if err := answer.print(w); err != nil {
		return err
	}
	return printChain(w, d.ECTs)
}
