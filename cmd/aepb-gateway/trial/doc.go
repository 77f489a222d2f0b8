// Package trial writes what a first gateway under serve needs: a CA of its own, certificates
// for the gateway, for its first operator and for a first caller, and a configuration that
// says what each key is for. In production a SPIFFE provider issues the certificates.
package trial
