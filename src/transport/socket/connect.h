// connect: a ByteChannel to an address, and one around a socket that came from elsewhere; in clear,
// or with TLS where a context is given. Nothing here blocks: the channel connects as it is
// advanced. One thread at a time for each channel.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "env/byte_channel.h"
#include "transport/socket/address.h"
#include "transport/socket/socket_fd.h"
#include "transport/socket/tls_context.h"

namespace strata::transport {

struct ConnectOptions {
  std::string peer = {};                // as texts name it; empty: the address
  std::vector<std::byte> preface = {};  // goes first, in clear also where TLS follows
  const TlsContext* tls = nullptr;      // of the client's side; outlives the channel
};

// An Error here is this host's; that nobody listens there is the channel's first one.
Result<std::unique_ptr<env::ByteChannel>> connect(const Address& address, ConnectOptions options);

// A connected socket whose clear part has been read. `tls`, where there is any, is of this end's
// side and outlives the channel.
Result<std::unique_ptr<env::ByteChannel>> adopt(SocketFd fd, std::string peer,
                                                const TlsContext* tls);

}  // namespace strata::transport
