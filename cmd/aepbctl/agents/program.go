package agents

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/client"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/gateway/directory/admindoc"
	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
)

// programFlags describe an MCP server that speaks over standard input and output.
type programFlags struct {
	stdio     bool
	dir       string
	variables []string
	files     []string
	shared    bool
	memory    int
}

func (p *programFlags) add(flags *pflag.FlagSet) {
	flags.BoolVar(&p.stdio, "stdio", false, "the agent is an MCP server over standard input and output: the gateway runs the command after -- (only a gateway in dev)")
	flags.StringVar(&p.dir, "workdir", "", "folder in which the command starts (default: this one)")
	flags.StringArrayVar(&p.variables, "env", nil, "variable for the command, NAME=VALUE, besides PATH, HOME, USER, LANG and TMPDIR (repeatable)")
	flags.StringArrayVar(&p.files, "env-file", nil, "variable whose value is in a file, NAME=FILE (repeatable)")
	flags.BoolVar(&p.shared, "shared", false, "run one process of the command for all callers; it cannot ask them questions (default: one process for each session)")
	flags.IntVar(&p.memory, "memory-mib", 0, "memory that the command and all it starts may take (default 512)")
}

// arguments are a name, and with --stdio a command behind it.
func (p *programFlags) arguments(cmd *cobra.Command, args []string) error {
	if p.stdio {
		if at := cmd.ArgsLenAtDash(); at != 1 || len(args) < 2 {
			return errors.New("expected a name, --, and the command, such as: agents add files --stdio -- npx -y @modelcontextprotocol/server-filesystem FOLDER")
		}
		return nil
	}
	return cobra.ExactArgs(1)(cmd, args)
}

// check judges the command before anything is sent.
func (p *programFlags) check(command []string) error {
	if !p.stdio {
		if p.dir != "" || len(p.variables) > 0 || len(p.files) > 0 || p.shared || p.memory != 0 {
			return errors.New("--workdir, --env, --env-file, --shared and --memory-mib say something about --stdio")
		}
		return nil
	}
	for _, text := range slices.Concat(p.variables, p.files) {
		if !strings.Contains(text, "=") {
			return errors.New("--env expects NAME=VALUE, and --env-file NAME=FILE: one of them has no =")
		}
	}
	_, err := stdio.Parse(p.url(command))
	return err
}

// unknownFlag explains a flag that is one of the command's.
func (p *programFlags) unknownFlag(_ *cobra.Command, err error) error {
	if p.stdio {
		return fmt.Errorf("%w: write -- before the command, such as: agents add files --stdio -- npx -y SERVER", err)
	}
	return err
}

// url is the endpoint of the command; empty: there is none.
func (p *programFlags) url(command []string) string {
	if !p.stdio {
		return ""
	}
	out := stdio.Program{Command: command, Dir: p.dir, Env: variables(p.variables), EnvFiles: variables(p.files), Shared: p.shared, MemoryMiB: p.memory}
	if out.Dir == "" {
		out.Dir, _ = os.Getwd() // else where the gateway did
	}
	return out.URL()
}

func variables(list []string) map[string]string {
	out := map[string]string{}
	for _, text := range list {
		name, value, _ := strings.Cut(text, "=")
		out[name] = value
	}
	return out
}

// where is an endpoint for people: the command of a program, or the URL.
func where(endpoint string) string {
	return cmp.Or(commandAt(endpoint), endpoint)
}

// commandAt is the command of a program at an endpoint; empty: the endpoint is none.
func commandAt(endpoint string) string {
	program, err := stdio.Parse(endpoint)
	if err != nil {
		return ""
	}
	return strings.Join(program.Command, " ")
}

func processesCommand(c *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "processes [PID]", Short: "Show the programs that the gateway runs: for which agent and caller, since when, with how much memory",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var all struct {
				Processes []admindoc.Process `json:"processes"`
			}
			if err := c.Fetch(cmd, "/processes", &all); err != nil {
				return err
			}
			if len(args) == 1 {
				found := all.Processes[:0]
				for _, p := range all.Processes {
					if fmt.Sprint(p.PID) == args[0] {
						found = append(found, p)
					}
				}
				if all.Processes = found; len(found) == 0 {
					return errors.New("the gateway runs no program with process " + args[0] + " (what a program starts itself is not listed)")
				}
			}
			return c.Show(cmd, all, func(w io.Writer) error { return printProcesses(w, all.Processes, time.Now()) })
		},
	}
}

func printProcesses(w io.Writer, all []admindoc.Process, now time.Time) error {
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "PID\tAGENT\tCALLER\tPROGRAM\tRUNS FOR\tLAST USED\tUSES\tMEMORY")
	for _, p := range all {
		caller := terminal.Word(p.Caller)
		if p.Caller == "" {
			caller = "(the gateway itself, or all callers)"
		}
		used := now.Sub(p.Used).Round(time.Second).String() + " ago"
		if p.Uses > 0 {
			used = "now"
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%s\t%d\t%d MiB\n", p.PID, terminal.Word(p.Agent), caller, terminal.Word(p.Program), now.Sub(p.Started).Round(time.Second), used, p.Uses, p.MemoryMiB)
	}
	return table.Flush()
}
