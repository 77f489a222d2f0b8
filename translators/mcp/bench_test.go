package mcp_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// sizes are those of the bodies in the benchmarks, in bytes, about.
var sizes = []int{1 << 10, 16 << 10, 1 << 20}

// request is a tools/call whose arguments have many members.
func request(size int) translators.Wire {
	var rows strings.Builder
	for i := 0; rows.Len() < size-300; i++ {
		if i > 0 {
			rows.WriteByte(',')
		}
		fmt.Fprintf(&rows, `{"id":%d,"name":"row %d","price":%d.50,"tags":["a","b"],"note":"line\\nline"}`, i, i, i)
	}
	return translators.Wire{Binding: mcp.Binding, Version: mcp.Modern, Media: "application/json", Body: []byte(
		`{"jsonrpc":"2.0","id":"r-1","method":"tools/call","params":{"name":"load","arguments":{"rows":[` + rows.String() +
			`]},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`,
	)}
}

func BenchmarkDecode_BySize(b *testing.B) {
	codec := mcp.New(translators.Config{})
	for _, size := range sizes {
		wire := request(size)
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.SetBytes(int64(len(wire.Body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := codec.Decode(wire); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEncode_BySize(b *testing.B) {
	codec := mcp.New(translators.Config{})
	for _, size := range sizes {
		wire := request(size)
		message, err := codec.Decode(wire)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.SetBytes(int64(len(wire.Body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := codec.Encode(message, translators.Target{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
