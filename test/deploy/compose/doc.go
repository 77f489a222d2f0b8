// Package compose tests deploy/compose and the Dockerfile that it builds.
package compose
