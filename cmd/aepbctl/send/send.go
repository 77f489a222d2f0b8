// Package send has the commands that send a message through a gateway, and translate one without.
package send

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/client"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/proof"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/reply"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/audit"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// sending is what the flags of send say.
type sending struct {
	from, to, dest, message, text, tool, args, task string
	attach                                          []string
	save, out                                       string // folders; empty: nothing is kept
	detail                                          bool   // print the messages and tokens, not what they say
}

// Commands are the commands of the group.
func Commands(c *client.Client) []*cobra.Command {
	return []*cobra.Command{sendCommand(c), translateCommand(c)}
}

func sendCommand(c *client.Client) *cobra.Command {
	var s sending
	cmd := &cobra.Command{
		Use:   "send AGENT (WORDS… | --text TEXT | --tool NAME --args JSON | --message FILE) [--attach FILE] [--save DIR]",
		Short: "Send one message through the gateway, with an ECT of our own",
		Long: "Send one message through the gateway, with an ECT of our own, and print the answer and whether its\n" +
			"proof holds. With --save the request, the reply and the tokens are kept byte for byte, for\n" +
			"\"aepbctl ect verify DIR\". A message about a task goes on in the workflow of that task.",
		Example: "  aepbctl send calculator --tool add --args '{\"a\": 1, \"b\": 2}' --save proof\n  aepbctl send concierge good evening\n" +
			"  aepbctl send concierge 'what is this?' --attach photo.jpg --out answers",
		PreRunE: func(_ *cobra.Command, args []string) error { return s.check(args) },
		RunE:    func(cmd *cobra.Command, _ []string) error { return deliver(cmd, c, s) },
	}
	flags := cmd.Flags()
	flags.StringVar(&s.from, "from", string(a2a.Binding), "the protocol of our message")
	flags.StringVar(&s.dest, "to", "", "the agent, in place of the first argument: a directory name or SPIFFE id")
	flags.StringVar(&s.to, "as", "", "the protocol to translate to (default: what the agent speaks)")
	flags.StringVar(&s.message, "message", "", "a file with a native message; - reads standard input")
	flags.StringVar(&s.message, "file", "", "an older name of --message")
	_ = flags.MarkHidden("file") // the flag is there
	flags.StringVar(&s.text, "text", "", "a text message, in place of words behind the agent")
	flags.StringVar(&s.tool, "tool", "", "the tool or skill to call")
	flags.StringArrayVar(&s.attach, "attach", nil, "a file to send along with the text (repeatable)")
	flags.StringVar(&s.save, "save", "", "a new folder for request, reply and tokens, byte for byte")
	flags.StringVar(&s.out, "out", "", "a folder for the files of the answer")
	flags.BoolVarP(&s.detail, "verbose", "v", false, "print the reply, losses and tokens as they came")
	flags.StringVar(&s.args, "args", "", "the arguments of --tool, a JSON object; with --task and no --tool: the values of the form in the question")
	flags.StringVar(&s.task, "task", "", "the task that this message is for, such as one that asked a question")
	return cmd
}

// check takes the agent and the words from the arguments, and finds what the flags lack.
func (s *sending) check(args []string) error {
	words := args
	switch {
	case s.dest == "" && len(args) == 0:
		return errors.New("name the agent: aepbctl send AGENT WORDS…")
	case s.dest == "":
		s.dest, words = args[0], args[1:]
	case len(args) == 1 && args[0] == s.dest:
		return errors.New("name the agent once: as an argument, or with --to")
	}
	if len(words) > 0 && s.text != "" {
		return errors.New("say the text once: as words behind the agent, or with --text")
	}
	s.text = cmp.Or(s.text, strings.Join(words, " "))
	return s.checkContent()
}

// checkContent: there is one thing to be sent.
func (s *sending) checkContent() error {
	form := ""
	if s.task != "" && s.tool == "" {
		form = s.args
	}
	given := slices.DeleteFunc([]string{s.text + strings.Join(s.attach, ""), s.tool, s.message, form}, func(flag string) bool { return flag == "" })
	switch {
	case len(given) != 1:
		return errors.New("give one of: words behind the agent or --text, --tool, --message; --attach goes with words alone")
	case s.args != "" && s.tool == "" && s.task == "":
		return errors.New("--args goes with --tool: give the tool's name too")
	case s.task != "" && s.message != "":
		return errors.New("--task goes with words, --text, --tool or --args: a message in a file names its task itself")
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

func deliver(cmd *cobra.Command, c *client.Client, s sending) error {
	body, err := s.body(cmd.InOrStdin())
	if err != nil {
		return err
	}
	base, err := c.PublicURL()
	if err != nil {
		return err
	}
	form, version, err := reply.Protocol(s.from)
	if err != nil {
		return err
	}
	encoded := func(body []byte) []byte {
		return translators.Wire{Body: body, Hasher: translators.HasherOf(form)}.HashInput()
	}
	token, err := source(cmd, c, base, s, encoded(body))
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
	got, err := c.Call(cmd.Context(), http.MethodPost, base+"/aepb/translate?"+query.Encode(), header, body)
	if err != nil {
		return err
	}
	took := time.Since(began)
	stop()
	evidence, err := ect.ParseHeader(got.Header.Values(ect.HeaderName), ect.Limits{})
	if err != nil {
		return err
	}
	x := exchange{from: s.from, request: body, reply: got.Body, form: form, version: version}
	if x.records, err = c.Verify(cmd.Context(), append([]string{token.Compact()}, evidence...)); err != nil {
		return err
	}
	saved := keep(c, x, s.save)
	if got.Status != http.StatusOK {
		refusal := s.advise(c.Explain(cmd.Context(), got, s.dest))
		return errors.Join(refusal, c.Show(cmd, x.delivery(), func(w io.Writer) error { return x.printRefused(w, s.detail) }), saved)
	}
	note, proven := audit.Covers(x.records, encoded(body), encoded(got.Body), s.task != "")
	r := reply.Read(x.form, x.version, x.reply)
	r.Took = took
	err = c.Show(cmd, x.delivery(), func(w io.Writer) error {
		if s.detail {
			return x.delivery().write(w, x.records)
		}
		return errors.Join(r.Write(w), proof.LossesOf(proof.Warnings(x.records)).Write(w), printProof(w, x.records, proven, note), r.Next(w, s.dest))
	})
	parts := saveParts(cmd.ErrOrStderr(), s.out, r.Parts)
	return errors.Join(err, saved, parts, proven, r.Err)
}

// advise says how this program chooses among the tools of an agent.
func (s sending) advise(refused error) error {
	if s.text == "" || !strings.Contains(refused.Error(), "this agent has several skills") {
		return refused
	}
	return fmt.Errorf("%w; choose one: aepbctl send %s --tool NAME --args '{…}'", refused, terminal.Word(s.dest))
}

// source mints the ECT of the message that we are about to send: it is ours,
// and its out_hash is the hash of these very bytes (R4). A message about a task goes on where the task stands.
func source(cmd *cobra.Command, c *client.Client, base string, s sending, body []byte) (ect.Token, error) {
	got, err := c.Call(cmd.Context(), http.MethodGet, base+"/.well-known/aepb/gateway", nil, nil)
	if err != nil {
		return ect.Token{}, err
	}
	var gateway struct {
		ID string `json:"gateway_id"`
	}
	if got.Status != http.StatusOK || json.Unmarshal(got.Body, &gateway) != nil || gateway.ID == "" {
		return ect.Token{}, noGateway(base)
	}
	claims := ect.Claims{Act: "send_task", Audience: []string{gateway.ID}, Workflow: string(ect.NewID()), OutputHash: ect.Hash(body)}
	if s.task != "" {
		query := url.Values{"agent": {s.dest}, "task": {s.task}}
		got, err := c.Call(cmd.Context(), http.MethodGet, base+"/ects?"+query.Encode(), nil, nil)
		if err != nil {
			return ect.Token{}, err
		}
		if last, _, err := ect.ParseUnverified(string(got.Body)); got.Status == http.StatusOK && err == nil {
			claims.Workflow, claims.Parents = last.Workflow, []ect.ID{last.ID}
		}
	}
	signer, _, err := c.Signer()
	if err != nil {
		return ect.Token{}, err
	}
	return signer.Sign(claims)
}

// noGateway says that something else answers at a URL.
func noGateway(base string) error {
	if strings.HasPrefix(base, "http://") {
		return errors.New("there is no AEPB gateway at " + base + ": a gateway speaks https")
	}
	return errors.New("there is no AEPB gateway at " + base)
}

// body is the native message: the file's, or one built from the flags.
func (s sending) body(stdin io.Reader) ([]byte, error) {
	switch {
	case s.message == "-":
		return io.ReadAll(io.LimitReader(stdin, translators.DefaultBodyLimit))
	case s.message != "":
		return os.ReadFile(s.message)
	}
	form, version, err := reply.Protocol(s.from)
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
		parts, err := s.parts()
		if err != nil {
			return nil, err
		}
		invoke.Turn = canonical.Content{ID: id, Role: canonical.RoleCaller, Parts: parts}
	}
	wire, _, err := form.Encode(&canonical.Message{
		Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Body: invoke,
		Correlation: canonical.Correlation{WireID: json.RawMessage(`"` + id + `"`), MessageID: id}, Conversation: canonical.Conversation{TaskID: s.task},
	}, translators.Target{Version: version, Capability: capability, Stamp: noSender()})
	return wire.Body, err
}

// parts are the text and the files of a message, or the values of a form.
func (s sending) parts() ([]canonical.Part, error) {
	if s.text == "" && s.args != "" {
		return []canonical.Part{{Kind: canonical.KindData, Data: json.RawMessage(s.args)}}, nil
	}
	var parts []canonical.Part
	if s.text != "" {
		parts = append(parts, canonical.Part{Kind: canonical.KindText, Text: s.text})
	}
	for _, file := range s.attach {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		media, _, _ := strings.Cut(cmp.Or(mime.TypeByExtension(filepath.Ext(file)), http.DetectContentType(data)), ";")
		parts = append(parts, canonical.Part{Kind: canonical.KindFile, Bytes: data, Name: filepath.Base(file), Media: media})
	}
	return parts, nil
}
