// Package rollback plans rollbacks and keeps their journals (ATD, Rollback Protocol; R22, R26).
package rollback
