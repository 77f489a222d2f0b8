// Command release makes what GoReleaser does not: the image, without a container engine. And
// it checks what both have made.
//
//	release image DIST DIR         write the image of two platforms to DIR, an OCI image layout
//	release check DIST DIR         check archives, packages and the image
//	release same DIST OTHER        check that the programs in OTHER are those of DIST, byte by byte
//	release unpack DIR ROOT        unpack the image for this machine to ROOT
//
// DIST is the folder that GoReleaser wrote.
package main

import (
	"errors"
	"fmt"
	"os"
)

var errUsage = errors.New("usage: release image DIST DIR | release check DIST DIR | release same DIST OTHER | release unpack DIR ROOT")

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return errUsage
	}
	if args[0] == "unpack" {
		return unpack(args[1], args[2])
	}
	r, err := readRelease(args[1])
	if err != nil {
		return err
	}
	switch args[0] {
	case "image":
		return writeImage(r, args[2])
	case "check":
		return check(r, args[2])
	case "same":
		other, err := readRelease(args[2])
		if err != nil {
			return err
		}
		return same(r, other)
	}
	return errUsage
}
