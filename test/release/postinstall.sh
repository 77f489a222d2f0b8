#!/bin/sh
# Makes the user of the service. The service is started by the operator, after
# /etc/aepb/gateway.yaml is written.
set -e
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers aepb-gateway.conf
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
