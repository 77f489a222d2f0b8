// Package trial writes what a first gateway under serve needs: a CA of its own, certificates
// for the gateway, for its first operator and for a first caller, and a configuration that
// says what each key is for. The CA of such a folder also issues certificates for further
// callers, agents and operators, and renews them. In larger deployments a SPIFFE provider does.
package trial
