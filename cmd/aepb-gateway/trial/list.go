package trial

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

const oneDay = 24 * time.Hour

// nearEnd is how long before its end a certificate is warned of.
const nearEnd = 14 * oneDay

// PrintList writes a table of the certificates in the folder to w, and to warnings what ends within
// 14 days or cannot be used.
func (f *Folder) PrintList(w, warnings io.Writer) error {
	found, others, err := f.Certificates()
	if err != nil {
		return err
	}
	now := f.now()
	var text strings.Builder
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "FILE\tID\tKIND\tNAMES\tENDS IN")
	for _, cert := range found {
		file, end := cert.Name+certSuffix, cert.Leaf.NotAfter
		names := strings.Join(cert.names(), ", ")
		if names == "" {
			names = "-"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", file, cert.ID, cert.Kind, names, left(end, now))
		remedy := f.remedy(cert)
		switch {
		case cert.Broken:
			fmt.Fprintf(&text, "warning: %s is not the certificate of %s: %s\n", file, cert.Name+keySuffix, remedy)
		case now.After(end):
			fmt.Fprintf(&text, "warning: %s ended on %s: %s\n", file, day(end), remedy)
		case end.Sub(now) <= nearEnd:
			fmt.Fprintf(&text, "warning: %s ends on %s: %s\n", file, day(end), remedy)
		}
	}
	for _, file := range others {
		fmt.Fprintf(&text, "warning: %s holds no certificate\n", file)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err = io.WriteString(warnings, text.String())
	return err
}

// remedy is what to do about a certificate that ends.
func (f *Folder) remedy(cert Certificate) string {
	switch {
	case cert.Kind == KindOther:
		return "the CA that signed it has to renew it"
	case cert.Kind != KindCA:
		return "issue it anew: --renew " + cert.Name
	case cert.Leaf.Equal(f.anchor()):
		return "make a new CA: --renew-ca"
	default:
		return "renew first what it signed"
	}
}

// left is how long it is until an end: in days, in the last two days in hours.
func left(end, now time.Time) string {
	switch span := end.Sub(now); {
	case span < 0:
		return "ended"
	case span < 2*oneDay:
		return fmt.Sprintf("%d h", span/time.Hour)
	default:
		return fmt.Sprintf("%d days", span/oneDay)
	}
}
