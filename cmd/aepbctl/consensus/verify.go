package consensus

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/ect"
)

// maxFile bounds a file that is verified, in bytes.
const maxFile = 64 << 20

// verdict is what verify prints.
type verdict struct {
	Holds    bool      `json:"holds"`
	Findings []finding `json:"findings"`
}

func verifyCommand(d Deps) *cobra.Command {
	var t trust
	var coordinator string
	cmd := &cobra.Command{
		Use: "verify DIR", Short: "Verify the outcome of a round that was saved, without the gateway", Args: cobra.ExactArgs(1),
		Long: "Verify the outcome of a round that show --save wrote, with nothing but trust anchors: each signature as of when the\n" +
			"message says that it was signed, and the tally and the result anew from the messages. The exit code is 0 only if\n" +
			"each file of the folder was looked at and everything in it holds. What else is to be looked at is marked \"else\".",
		PreRunE: func(*cobra.Command, []string) error { return t.check() },
		RunE: func(cmd *cobra.Command, args []string) error {
			verifier, err := d.Verifier(t.bundle, t.domain)
			if err != nil {
				return err
			}
			a := audit{verifier: verifier, coordinator: ect.Identity(coordinator)}
			round, pages, err := a.open(args[0])
			if err != nil {
				return err
			}
			a.run(cmd.Context(), round, pages)
			out := verdict{!slices.ContainsFunc(a.findings, func(f finding) bool { return f.Status == statusFailed }), a.findings}
			if err := d.Show(cmd, out, out.print(d)); err != nil {
				return err
			}
			if !out.Holds {
				return d.Refused
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&coordinator, "coordinator", "", "identity of the gateway that has to have signed the outcome")
	t.add(cmd)
	return cmd
}

// open reads the files of a folder. One that is not of a round is a finding: it was not looked at.
func (a *audit) open(dir string) (round []byte, pages [][]byte, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	known := []string{roundFile}
	if round, err = readFile(dir, roundFile); err != nil {
		return nil, nil, err
	}
	for n := 1; n == 1 || exists(filepath.Join(dir, messageFile(n))); n++ {
		page, err := readFile(dir, messageFile(n))
		if err != nil {
			return nil, nil, err
		}
		known, pages = append(known, messageFile(n)), append(pages, page)
	}
	for _, e := range entries {
		if !slices.Contains(known, e.Name()) {
			a.fail("folder", "%s is not a file of the round, and was not looked at: remove it", e.Name())
		}
	}
	return round, pages, nil
}

func readFile(dir, name string) ([]byte, error) {
	file := filepath.Join(dir, name)
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %s is the folder that show --save wrote", err, dir)
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s has %d bytes, expected at most %d", file, info.Size(), maxFile)
	}
	return os.ReadFile(file)
}

func (v verdict) print(d Deps) func(io.Writer) error {
	return func(w io.Writer) error {
		for _, f := range v.Findings {
			status := f.Status
			if status == statusFailed {
				status = "FAILED"
			}
			if _, err := fmt.Fprintf(w, "%-7s %-13s %s\n", status, f.Check, d.Line(f.Found)); err != nil {
				return err
			}
		}
		last := "the outcome holds"
		if !v.Holds {
			last = "the outcome does NOT hold: see what FAILED"
		}
		_, err := fmt.Fprintln(w, last)
		return err
	}
}
