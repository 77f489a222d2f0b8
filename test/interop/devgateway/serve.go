package devgateway

import "context"

// ServeDeps is what a gateway in production needs.
type ServeDeps struct {
	Binary string // from Build
	Config string // its configuration file, which says where it listens
	Trust  *Trust // of the files that Config names
}

// Serve runs `aepb-gateway serve` and returns when it is ready. The process
// outlives ctx: only Stop and Kill end it. It knows no admin token.
func Serve(ctx context.Context, d ServeDeps) (*Process, error) {
	p := &Process{Trust: d.Trust}
	if err := p.launch(ctx, d.Binary, []string{"serve", "--config", d.Config}); err != nil {
		return nil, err
	}
	return p, nil
}
