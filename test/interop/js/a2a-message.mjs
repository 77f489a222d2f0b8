// Messages and what comes of them, as the A2A scripts write and read them.

import { randomUUID } from 'node:crypto';
import { Role, TaskState } from '@a2a-js/sdk';

// The request that sends a message of parts, each {"text": …} or {"data": …}.
export function request(parts, { taskId = '', configuration } = {}) {
  return {
    tenant: '',
    configuration,
    metadata: undefined,
    message: {
      messageId: randomUUID(),
      contextId: '',
      taskId,
      role: Role.ROLE_USER,
      parts: parts.map(part),
      metadata: undefined,
      extensions: [],
      referenceTaskIds: [],
    },
  };
}

function part(p) {
  const content = 'text' in p ? { $case: 'text', value: p.text } : { $case: 'data', value: p.data };
  return { content, metadata: undefined, filename: '', mediaType: 'text' in p ? '' : 'application/json' };
}

// The values of one kind among parts.
export function values(parts, kind) {
  return parts.filter((p) => p.content.$case === kind).map((p) => p.content.value);
}

export function stateOf(task) {
  return TaskState[task.status.state];
}
