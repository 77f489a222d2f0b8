//go:build profile

package main

import "github.com/aepb/aepb-gateway/test/harness/profile"

// In a build for the benchmark alone, the process is profiled from its first moment.
func init() {
	if err := profile.Watch(); err != nil {
		panic(err)
	}
}
