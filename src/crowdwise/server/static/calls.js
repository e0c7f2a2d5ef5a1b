// Calls of the API with the session of the page.

// Status 0: the server could not be reached.
export class Failure extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }

  // The same call may work later.
  get passing() {
    return this.status === 0 || this.status === 408 || this.status === 429 || this.status >= 500;
  }

  // The session is over, or another one began in this browser.
  get signedOut() {
    return this.status === 401 || (this.status === 403 && this.message.includes("x-csrf-token"));
  }
}

// Files as a form, each in a field "file".
export function upload(path, ...files) {
  const form = new FormData();
  for (const file of files) form.append("file", file, file.name);
  return call(path, form);
}

export async function call(path, body, method) {
  const csrf = document.querySelector("meta[name=csrf]");
  const options = { method: method || (body === undefined ? "GET" : "POST"), headers: { "x-csrf-token": csrf ? csrf.content : "" } };
  if (body instanceof FormData) options.body = body;
  else if (body !== undefined) {
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let answer, content;
  try {
    answer = await fetch(path, options);
    content = await answer.json();
  } catch {
    throw new Failure("The server cannot be reached.", answer && answer.status >= 400 ? answer.status : 0);
  }
  if (!answer.ok) throw new Failure(content.detail || answer.statusText, answer.status);
  return content;
}
